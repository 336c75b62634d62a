"""From a checked configuration to what is to be made. Pure: it reads, and writes nothing."""
