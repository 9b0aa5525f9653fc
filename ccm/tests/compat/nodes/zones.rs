//! Instances whose zones the cloud reports in another call.

use provider_mock::fixture::Place;
use provider_mock::{Fault, Instance};
use provider_sdk::FailureCode;

use super::{instance, joining, joins, stays, told};
use crate::scenario::{Scenario, nothing};
use crate::side::Side;

const ZONES: &str = "LookupZones";

/// An instance without zone and region.
fn somewhere(name: &str) -> Instance {
    Instance {
        zone: None,
        region: None,
        ..instance(name)
    }
}

pub fn zones() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "zone-apart",
            "only LookupZones reports an instance's zone and region",
            &["B-N3"],
            async |side: Side, name| {
                let place = Place {
                    zone: Some("zone-7".to_owned()),
                    region: Some("region-7".to_owned()),
                };
                let set = side.cloud().change_settings(|settings| {
                    settings.zones.insert(name.to_owned(), place);
                });
                set.unwrap();
                joins(&side, somewhere(name), joining(name)).await;
                nothing()
            },
        ),
        told(
            "CloudUnavailable: scripted by the mock",
            Scenario::new(
                "zone-fails",
                "LookupZones fails",
                &["B-N3", "B-N8"],
                async |side: Side, name| {
                    side.fault(Fault::failure(ZONES, FailureCode::Unavailable).subject(name));
                    side.cloud().add_instance(somewhere(name)).unwrap();
                    stays(&side, name, joining(name)).await;
                    nothing()
                },
            ),
        ),
    ]
}
