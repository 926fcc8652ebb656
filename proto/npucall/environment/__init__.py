"""What processes read of their host: environment variables, files that change.

Its modules, from the top::

    variables        which variables npucall does not know, and which were meant
    known_variables  their names, generated from the settings
    watched_file     a file that is read again when it changes
"""
