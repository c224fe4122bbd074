"""What ``laps-sd simulate`` does with a trace: read it, find predictions, replay, average."""
