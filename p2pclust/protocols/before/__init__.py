"""What may come before a clustering: common scales and first centers."""
