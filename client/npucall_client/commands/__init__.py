"""The command ``npucall``."""

import gc


def main() -> None:
    """Runs the subcommand that ``sys.argv`` names."""
    gc.disable()  # what is imported stays: to look for garbage in it costs a quarter of a start
    from npucall_client.commands import command  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    command.main()
