a = 1
x = 0
b = 2

c = 3


