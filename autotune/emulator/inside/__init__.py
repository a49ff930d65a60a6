"""What runs inside an emulated phone: its first process, and what its programs need to run as on a phone."""
