//! Address pools, from which load balancers get their addresses.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A range of addresses of one family: `192.0.2.0/24`, `192.0.2.10-192.0.2.20` or a single address.
/// If a CIDR has more than two addresses, its first address is not in the pool. If it is IPv4, the
/// last is not in the pool either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    text: String,
    first: u128,
    last: u128,
    ipv6: bool,
}

impl Pool {
    /// Whether its addresses are IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    /// Whether the address is in the pool.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv6() == self.ipv6 && (self.first..=self.last).contains(&number(address))
    }

    /// The n-th address, from 0.
    pub fn nth(&self, n: u64) -> Option<IpAddr> {
        let value = self.first.checked_add(u128::from(n))?;
        (value <= self.last).then(|| self.address(value))
    }

    /// The lowest address that is not taken.
    pub fn first_free(&self, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        // One more candidate than there are taken addresses is always enough.
        (0..=taken.len() as u64)
            .map_while(|n| self.nth(n))
            .find(|address| !taken.contains(address))
    }

    fn address(&self, value: u128) -> IpAddr {
        if self.ipv6 {
            Ipv6Addr::from(value).into()
        } else {
            Ipv4Addr::from(value as u32).into()
        }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

impl FromStr for Pool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            format!(
                "{text:?} is not an address pool; write a CIDR such as 192.0.2.0/24 or 2001:db8::/112, a range such as 192.0.2.10-192.0.2.20, or one address"
            )
        };
        let ip = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| wrong());
        let (first, last, ipv6) = if let Some((address, prefix)) = text.split_once('/') {
            let address = ip(address)?;
            let prefix: u32 = prefix.parse().map_err(|_| wrong())?;
            let bits = if address.is_ipv6() { 128 } else { 32 };
            if prefix > bits {
                return Err(wrong());
            }
            let hosts = match bits - prefix {
                128 => u128::MAX,
                host_bits => (1u128 << host_bits) - 1,
            };
            let network = number(address) & !hosts;
            let last = network + hosts;
            if hosts < 2 {
                (network, last, address.is_ipv6())
            } else {
                let last = if address.is_ipv6() { last } else { last - 1 };
                (network + 1, last, address.is_ipv6())
            }
        } else if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (ip(first)?, ip(last)?);
            if first.is_ipv6() != last.is_ipv6() || number(first) > number(last) {
                return Err(wrong());
            }
            (number(first), number(last), first.is_ipv6())
        } else {
            let address = ip(text)?;
            (number(address), number(address), address.is_ipv6())
        };
        Ok(Self {
            text: text.to_owned(),
            first,
            last,
            ipv6,
        })
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Pool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_address_is_given() {
        for (pool, taken, want) in [
            ("192.0.2.0/24", vec![], Some("192.0.2.1")),
            (
                "192.0.2.0/24",
                vec!["192.0.2.1", "192.0.2.3"],
                Some("192.0.2.2"),
            ),
            ("192.0.2.0/30", vec!["192.0.2.1", "192.0.2.2"], None),
            ("192.0.2.9", vec![], Some("192.0.2.9")),
            ("192.0.2.9/32", vec!["192.0.2.9"], None),
            ("192.0.2.5-192.0.2.6", vec!["192.0.2.5"], Some("192.0.2.6")),
            ("2001:db8::/112", vec!["2001:db8::1"], Some("2001:db8::2")),
            ("::/0", vec![], Some("::1")),
        ] {
            let pool: Pool = pool.parse().unwrap();
            let taken = taken.iter().map(|text| text.parse().unwrap()).collect();
            let want = want.map(|text| text.parse().unwrap());
            assert_eq!(pool.first_free(&taken), want, "{pool}");
        }
    }

    #[test]
    fn a_wrong_pool_says_what_would_be_right() {
        for text in [
            "",
            "10.0.0",
            "10.0.0.0/33",
            "10.0.0.9-10.0.0.1",
            "10.0.0.1-::1",
            "10.0.0.0/x",
        ] {
            let error = text.parse::<Pool>().unwrap_err();
            assert!(error.contains("192.0.2.0/24"), "{error}");
        }
    }
}
