"""The smallest program of the other clients, by their drivers: small_other HOST PORT DRIVER."""

import sys

driver = __import__("drive_" + sys.argv[3])
driver.load()
c = driver.connect(sys.argv[1], int(sys.argv[2]), "small")
driver.do(c, "qos1", 1)
print("done")
