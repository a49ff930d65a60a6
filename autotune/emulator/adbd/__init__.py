"""The phone's side of adb: what the adb server of a host finds at the other end of the link."""
