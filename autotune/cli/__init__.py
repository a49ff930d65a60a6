"""The command line: `main.py` and one file a command. Data goes to jobs, results come back and are printed."""
