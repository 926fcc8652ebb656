"""What callers hold and have used: the ledger, quotas, the account and its file."""
