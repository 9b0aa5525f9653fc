"""A small account in moto: a network, a subnet, a route table and instances, as an operator of a Kubernetes cluster makes them.

cloud.py PORT setup NAME…      makes all of it, prints the cloud config and, a line each, # NODE_NAME PROVIDER_ID
cloud.py PORT remove NAME      terminates an instance, as long as its console forgets it
cloud.py PORT routes           prints the routes of the route table
cloud.py PORT balancers        prints the names of the load balancers
"""

import sys

import boto3

CLUSTER = "bridge"
PLACE = {
    "region_name": "eu-west-1",
    "aws_access_key_id": "testing",
    "aws_secret_access_key": "testing",
}
TAG = {"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "owned"}


def tagged(kind, *more):
    return [{"ResourceType": kind, "Tags": [TAG, *more]}]


def setup(ec2, names):
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc"))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(
        VpcId=vpc, CidrBlock="10.0.0.0/20", AvailabilityZone="eu-west-1a", TagSpecifications=tagged("subnet")
    )["Subnet"]["SubnetId"]
    table = ec2.create_route_table(VpcId=vpc, TagSpecifications=tagged("route-table"))["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    group = ec2.create_security_group(
        GroupName="nodes", Description="nodes", VpcId=vpc, TagSpecifications=tagged("security-group")
    )["GroupId"]
    print(f'[Global]\nZone = "eu-west-1a"\nVPC = "{vpc}"\nSubnetID = "{subnet}"\nKubernetesClusterID = "{CLUSTER}"\n')
    image = ec2.describe_images()["Images"][0]["ImageId"]
    for name in names:
        made = ec2.run_instances(
            ImageId=image,
            InstanceType="m5.large",
            MinCount=1,
            MaxCount=1,
            SubnetId=subnet,
            SecurityGroupIds=[group],
            TagSpecifications=tagged("instance", {"Key": "Name", "Value": name}),
        )["Instances"][0]
        # AWS names a Node after its instance's private DNS name.
        print("#", made["PrivateDnsName"], f"aws:///eu-west-1a/{made['InstanceId']}")


def main():
    port, command, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    place = dict(PLACE, endpoint_url=f"http://127.0.0.1:{port}")
    ec2 = boto3.client("ec2", **place)
    if command == "setup":
        setup(ec2, names)
    elif command == "remove":
        ec2.terminate_instances(InstanceIds=names)
    elif command == "routes":
        for table in ec2.describe_route_tables(Filters=[{"Name": "tag-key", "Values": [TAG["Key"]]}])["RouteTables"]:
            for route in table["Routes"]:
                print(route.get("DestinationCidrBlock"), route.get("InstanceId"))
    elif command == "balancers":
        for balancer in boto3.client("elb", **place).describe_load_balancers()["LoadBalancerDescriptions"]:
            print(balancer["LoadBalancerName"], *(one["InstanceId"] for one in balancer["Instances"]))
    else:
        sys.exit(__doc__)


main()
