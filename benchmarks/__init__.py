"""Speed compared with TRL and with the machine's peak. The README shows the figures written here."""
