"""What an agent remembers: entries, banks, retrieval. Knows no environment, policy or training."""
