def f():
    try:
        run()
    finally:
        stop()


def g():
    try:
        run()
    finally:
        stop()
