"""Speed compared with TRL and with the machine's peak. docs/study.md links to the figures written here."""
