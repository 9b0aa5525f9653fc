"""A small account in moto: a network, a subnet, a route table and instances, as an operator of a Kubernetes cluster makes them.

cloud.py PORT setup NAME…      makes all of it, prints the cloud config and, for each instance, a line # NODE_NAME PROVIDER_ID
cloud.py PORT add NODE         makes one more instance, whose Node has this name; prints its provider ID
cloud.py PORT remove ID        terminates an instance
cloud.py PORT stop ID          shuts one down
cloud.py PORT start ID         starts it
cloud.py PORT routes           prints the routes of the route table
cloud.py PORT unroute CIDR     deletes the route to it
cloud.py PORT balancers        prints the load balancers, a line each: name, ports, instances of classic ones
cloud.py PORT certificate      has a certificate made; prints its ARN
cloud.py PORT unbalance HANDLE deletes the classic load balancer that this handle of the bridge names
cloud.py PORT console WHAT [KEY=VALUE]…   asks the server's console (server.py)
"""

import json
import sys
from urllib.parse import urlencode
from urllib.request import urlopen

CLUSTER = "bridge"
ZONE = "eu-west-1a"
TAG = {"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "owned"}


def client(port, service):
    import boto3  # The import takes a second, and the command `console` does not need it.

    place = {"region_name": "eu-west-1", "aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return boto3.client(service, endpoint_url=f"http://127.0.0.1:{port}", **place)


def tagged(kind, *more):
    return [{"ResourceType": kind, "Tags": [TAG, *more]}]


def ours(name):
    return [{"Name": name, "Values": [TAG["Key"]]}]


def provider_id(instance):
    return f"aws:///{ZONE}/{instance}"


def setup(ec2, nodes):
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc"))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(
        VpcId=vpc, CidrBlock="10.0.0.0/20", AvailabilityZone=ZONE, TagSpecifications=tagged("subnet")
    )["Subnet"]["SubnetId"]
    table = ec2.create_route_table(VpcId=vpc, TagSpecifications=tagged("route-table"))["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=vpc, TagSpecifications=tagged("security-group"))
    print(f'[Global]\nZone = "{ZONE}"\nVPC = "{vpc}"\nSubnetID = "{subnet}"\nKubernetesClusterID = "{CLUSTER}"\n')
    for name in nodes:
        made = run(ec2, name)
        # AWS names a Node after its instance's private DNS name.
        print("#", made["PrivateDnsName"], provider_id(made["InstanceId"]))


def run(ec2, name):
    return ec2.run_instances(
        ImageId=ec2.describe_images()["Images"][0]["ImageId"],
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        SubnetId=ec2.describe_subnets(Filters=ours("tag-key"))["Subnets"][0]["SubnetId"],
        SecurityGroupIds=[ec2.describe_security_groups(Filters=ours("tag-key"))["SecurityGroups"][0]["GroupId"]],
        TagSpecifications=tagged("instance", {"Key": "Name", "Value": name}),
    )["Instances"][0]


def console(port, what, **asked):
    with urlopen(f"http://127.0.0.1:{port}/console/{what}?{urlencode(asked)}", timeout=30) as answer:
        return answer.read().decode()


def tables(ec2):
    return ec2.describe_route_tables(Filters=ours("tag-key"))["RouteTables"]


def main():
    port, command, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
    if command == "console":
        print(console(port, arguments[0], **dict(argument.split("=", 1) for argument in arguments[1:])))
        return
    ec2 = client(port, "ec2")
    instances = [argument.rsplit("/", 1)[-1] for argument in arguments]
    if command == "setup":
        setup(ec2, arguments)
    elif command == "add":
        made = run(ec2, arguments[0])["InstanceId"]
        console(port, "name", instance=made, name=arguments[0])
        print(provider_id(made))
    elif command == "remove":
        ec2.terminate_instances(InstanceIds=instances)
    elif command == "stop":
        ec2.stop_instances(InstanceIds=instances)
    elif command == "start":
        ec2.start_instances(InstanceIds=instances)
    elif command == "routes":
        for table in tables(ec2):
            for route in table["Routes"]:
                print(route.get("DestinationCidrBlock"), route.get("InstanceId"))
    elif command == "unroute":
        ec2.delete_route(RouteTableId=tables(ec2)[0]["RouteTableId"], DestinationCidrBlock=arguments[0])
    elif command == "balancers":
        for balancer in client(port, "elb").describe_load_balancers()["LoadBalancerDescriptions"]:
            ports = (one["Listener"]["LoadBalancerPort"] for one in balancer["ListenerDescriptions"])
            print(balancer["LoadBalancerName"], *ports, *(one["InstanceId"] for one in balancer["Instances"]))
        networks = client(port, "elbv2")
        for balancer in networks.describe_load_balancers()["LoadBalancers"]:
            listeners = networks.describe_listeners(LoadBalancerArn=balancer["LoadBalancerArn"])["Listeners"]
            print(balancer["LoadBalancerName"], *(one["Port"] for one in listeners))
    elif command == "certificate":
        print(client(port, "acm").request_certificate(DomainName="web.example")["CertificateArn"])
    elif command == "unbalance":
        client(port, "elb").delete_load_balancer(LoadBalancerName=json.loads(arguments[0])["name"])
    else:
        sys.exit(__doc__)


main()
