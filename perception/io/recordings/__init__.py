"""Recordings: ROS bags and MCAP files, their messages, scans and poses."""
