"""Questions in plain words over known stores."""
