"""Tables and figures of the serving study: ours, and what DynamoLLM and others report."""
