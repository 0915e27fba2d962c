"""Commands for fleets of robots and database servers."""
