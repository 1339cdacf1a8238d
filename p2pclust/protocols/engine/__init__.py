"""What runs any protocol: jobs, states, arrays, sums on the shared grid, and the one caller of protocols."""
