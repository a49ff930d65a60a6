"""Code that runs inside an emulated phone: its first process, and the support that its programs need."""
