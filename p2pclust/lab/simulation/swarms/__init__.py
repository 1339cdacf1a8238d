"""What random fleets meet and are watched for at the control address, lies of peers, and planted bugs."""
