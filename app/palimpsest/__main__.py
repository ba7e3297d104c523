"""`python -m palimpsest`: the command line, where no script was installed."""

from palimpsest.cli.main import main

if __name__ == "__main__":
    main()
