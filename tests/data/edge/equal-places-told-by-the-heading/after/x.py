def f():
    try:
        run()
    finally:
        stop()


def g():
    try:
        go()
    finally:
        stop()
