"""The parts of a service, made from the settings; at a reload what is unchanged is kept."""
