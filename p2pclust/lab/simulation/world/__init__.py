"""Virtual time: simulated peers, disks, links and networks."""
