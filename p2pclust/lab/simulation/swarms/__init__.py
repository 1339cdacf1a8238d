"""What random fleets meet and are watched for at the control address, lies that peers tell, and planted bugs."""
