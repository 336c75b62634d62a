"""Tables and figures of the serving study: ours beside what DynamoLLM and others report."""
