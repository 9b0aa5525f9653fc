//! The ccm is killed at any point.

use super::super::World;
use super::super::api_server::WriteFault;
use super::super::cloud::Fault;
use super::End;

/// Fault: the ccm is killed right before or right after any write of a Service's life | the next
/// process goes on where the killed one ended; makes the load balancer; makes nothing twice; leaves
/// nothing
#[tokio::test(start_paused = true)]
async fn fault_service_ccm_killed_at_any_write() {
    for fault in [WriteFault::CcmDiesBefore, WriteFault::CcmDiesAfter] {
        for (end, least) in [(End::Deleted, 7), (End::TypeChanged, 8)] {
            for number in 1.. {
                let mut world = World::new(1).await;
                world.server.fault(number, 1, fault);
                world.lives(end, None).await;
                let attempts = world.server.attempts().len();
                if attempts < number {
                    assert!(
                        attempts >= least,
                        "the next process goes on where the killed one ended: {attempts} writes"
                    );
                    break;
                }
            }
        }
    }
}

/// Fault: the ccm is killed during a call to the provider, before or after the call's effect |
/// makes the load balancer; never makes it again; makes nothing twice; leaves nothing
#[tokio::test(start_paused = true)]
async fn fault_service_ccm_killed_in_any_call() {
    for rpc in ["Get", "Ensure", "Update", "Delete"] {
        for fault in [Fault::CcmDiesBefore, Fault::CcmDiesAfter] {
            for times in [1, 3] {
                let mut world = World::new(1).await;
                let faults = std::iter::repeat_n(fault.clone(), times).collect();
                world.cloud.state().faults.insert(rpc, faults);
                world.lives(End::Deleted, None).await;
            }
        }
    }
}
