"""The command line: `main.py`, and one file per command. Commands make requests for jobs and print the results."""
