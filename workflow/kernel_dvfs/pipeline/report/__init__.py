"""Tables and figures of the pipeline study: ours beside the figures that the Perseus paper and its artifact print."""
