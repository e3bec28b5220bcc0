a = 1
try:
    run()
finally:
    stop()
b = 2
b = 2
b = 2
try:
    run()
finally:
    stop()
c = 3
