//! Refusals by AWS, as operators see them.

use kube::api::PostParams;
use testenv::eventually;
use testenv::objects::{LoadBalancerBuilder, ingress};

use crate::aws::Aws;
use crate::clouds::Cloud;
use crate::life::{PLANES, SOON, World};

/// The code that the test API's console takes, and AWS's errors for it: EC2's for instances, and
/// ELB's.
const REFUSALS: [(&str, [&str; 2]); 4] = [
    ("CREDENTIALS", ["AuthFailure", "InvalidClientTokenId"]),
    ("THROTTLED", ["RequestLimitExceeded", "Throttling"]),
    ("UNAVAILABLE", ["Unavailable", "ServiceUnavailable"]),
    (
        "PRECONDITION",
        ["ResourceLimitExceeded", "TooManyLoadBalancers"],
    ),
];

#[tokio::test]
async fn whole_what_aws_refuses_is_told_on_the_object_and_done_when_that_is_over() {
    let plane = PLANES.take().await.unwrap();
    let (aws, machines) = Aws::start(plane.directory(), &["a", "b", "c", "d", "e"]).await;
    let mut world = World::new(plane, Cloud::Aws(aws));
    world.start_ours(&[]);
    let (first, others) = machines.split_at(1);
    world.join(first).await;
    for ((code, words), machine) in REFUSALS.into_iter().zip(others.chunks(1)) {
        let name = code.to_lowercase();
        world
            .aws()
            .run(&["console", "fail", &format!("code={code}")]);
        world.register(machine).await;
        let service = LoadBalancerBuilder::new("default", &name).build();
        let how = PostParams::default();
        world.services().create(&how, &service).await.unwrap();
        for object in [&machine[0].node, &name] {
            eventually(&format!("{code} is told on {object}"), SOON, async || {
                let events = world.events(object).await;
                let told = |text: &String| words.iter().any(|word| text.contains(word));
                let told = events.iter().any(told);
                told.then_some(()).ok_or_else(|| events.join("\n"))
            })
            .await;
        }
        // The first Node is still there, and there is only one load balancer.
        world.aws().run(&["console", "fail", "code=NONE"]);
        world.joined(machine).await;
        let served = |service: &_| ingress(service).is_some();
        world.service_becomes(&name, "is served", served).await;
        let balancers = world.aws().run(&["balancers"]);
        assert_eq!(balancers.lines().count(), 1, "{balancers}");
        world.joined(first).await;
        world.unserve(&name).await;
    }
}
