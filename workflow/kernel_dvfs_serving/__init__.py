"""Energy management of LLM inference serving: DynamoLLM and its baselines on a modelled cluster."""
