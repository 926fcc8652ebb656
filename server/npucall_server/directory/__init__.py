"""``npucall-directory``: servers announce themselves there, clients watch the table."""
