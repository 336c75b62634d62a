"""What only serves the developers: README.md says what is here and how each is run."""
