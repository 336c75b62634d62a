"""Commands: options in, library called, one line on stderr when something is wrong."""
