"""What a fleet's messages give away: the attacks, done on the contributions of a job (docs/security.md)."""
