"""What tables and page say of a captured step."""
