"""All that knows protobuf: what is declared, asked and answered, and its bytes."""
