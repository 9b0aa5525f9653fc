"""moto's server, with what AWS does and moto leaves out: a new classic load balancer has a health check."""

from moto.elb import models
from moto.server import main

made = models.LoadBalancer.__init__


def with_health_check(self, *arguments, **named):
    made(self, *arguments, **named)
    self.health_check = models.FakeHealthCheck(timeout="5", healthy_threshold="10", unhealthy_threshold="2", interval="30", target="TCP:80")


models.LoadBalancer.__init__ = with_health_check

if __name__ == "__main__":
    main()
