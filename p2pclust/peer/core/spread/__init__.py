"""What spreads through the fleet: small facts by gossip, large blobs on request."""
