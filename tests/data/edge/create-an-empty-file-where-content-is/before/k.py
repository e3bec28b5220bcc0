kept = 1
