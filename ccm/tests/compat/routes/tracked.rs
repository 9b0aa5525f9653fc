//! A cloud whose routes depend on their Nodes' addresses.

use provider_mock::Address;

use super::{
    Route, Scenario, Side, cloud_has, gets_cidrs, instance, joins, nothing, planted, routed, v4,
};

/// Sets the capability `tracks_node_addresses`. A new controller takes over, and reads it.
pub async fn track(side: &Side) {
    let changed = side.cloud().change_settings(|settings| {
        settings.capabilities.routes.tracks_node_addresses = true;
    });
    changed.unwrap();
    side.bridge().await;
    let before = side.holder().await.unwrap();
    side.start(side.who());
    side.stop_first().await;
    side.led(&before).await;
}

/// Waits until the route of a Node has these addresses in the cloud.
async fn has_addresses(side: &Side, destination: &str, wanted: &[Address]) {
    let what = format!("the route to {destination} has the addresses {wanted:?}");
    side.cloud_is(&what, |cloud| {
        let routes = cloud.routes();
        let mut routes = routes.iter();
        routes.any(|it| it.destination_cidr == destination && it.node_addresses == wanted)
    })
    .await;
}

pub fn tracked() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "route-tracked",
            "a Node joins where routes depend on addresses",
            &["B-R3", "B-R4"],
            async |side: Side, name| {
                joins(&side, instance(name), &[v4(40)]).await;
                has_addresses(&side, &v4(40), &instance(name).addresses).await;
                routed(&side, name).await;
                nothing()
            },
        ),
        Scenario::new(
            "route-addresses",
            "the addresses of a routed Node change",
            &["B-R3", "B-R4"],
            async |side: Side, name| {
                joins(&side, instance(name), &[v4(41)]).await;
                has_addresses(&side, &v4(41), &instance(name).addresses).await;
                let now = [Address::InternalIp([10, 99, 41, 1].into())];
                let set = now.to_vec();
                side.cloud()
                    .change_instance(name, |it| it.addresses = set)
                    .unwrap();
                has_addresses(&side, &v4(41), &now).await;
                routed(&side, name).await;
                nothing()
            },
        ),
        Scenario::new(
            "route-wrong-target",
            "the route to a Node's Pod CIDR leads to another Node",
            &["B-R2", "B-R4"],
            async |side: Side, name| {
                let other = format!("{name}--other");
                joins(&side, instance(&other), &[v4(42)]).await;
                routed(&side, &other).await;
                joins(&side, instance(name), &[]).await;
                let route = planted(name, &v4(43), &other, Some(side.owner().await));
                // The controller must not see the route before the Node has its Pod CIDR, because
                // it would remove the route.
                let suspended = side.suspend();
                side.cloud().plant_route(route).unwrap();
                gets_cidrs(&side, name, &[v4(43)]).await;
                drop(suspended);
                side.cloud_is("the route leads to the Node", |cloud| {
                    let routes = cloud.routes();
                    let mut routes = routes.iter().filter(|it| it.destination_cidr == v4(43));
                    routes.any(|it| it.node_name.as_deref() == Some(name))
                })
                .await;
                routed(&side, name).await;
                nothing()
            },
        ),
        Scenario::new(
            "route-blackhole-live",
            "the route to a Node's Pod CIDR leads to an instance that is gone",
            &["B-R2", "B-R4"],
            async |side: Side, name| {
                joins(&side, instance(name), &[v4(44)]).await;
                has_addresses(&side, &v4(44), &instance(name).addresses).await;
                let route = Route {
                    provider_id: Some("mock://zone-1/gone".to_owned()),
                    ..planted(name, &v4(44), name, Some(side.owner().await))
                };
                let planted = route.name.clone();
                side.cloud().plant_route(route).unwrap();
                // A controller that gets no hints lists the routes again when a Node joins.
                let later = format!("{name}--later");
                joins(&side, instance(&later), &[v4(45)]).await;
                side.cloud_is("the route that leads nowhere goes", |cloud| {
                    cloud.routes().iter().all(|route| route.name != planted)
                })
                .await;
                cloud_has(&side, &v4(44), true).await;
                nothing()
            },
        ),
    ]
}
