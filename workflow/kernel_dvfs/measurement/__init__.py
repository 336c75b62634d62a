"""One target at one clock pair, measured by protocol and recorded. Light: runs in every measurement job."""
