//! Several policies as one: what all of them agree on.

use super::{Facts, ScalePolicy, Verdict, decide};

/// Policies of any kind that all must agree: if one ends the job it ends, if one waits it waits, else
/// it runs with the fewest ranks that anybody names and nobody objects to.
pub struct Together(pub Vec<Box<dyn ScalePolicy + Send + Sync>>);

impl ScalePolicy for Together {
    fn decide(&self, facts: &Facts) -> Verdict {
        let policies: Vec<&dyn ScalePolicy> = self.0.iter().map(|policy| &**policy as _).collect();
        all(&policies, facts)
    }

    fn name(&self) -> String {
        self.0.iter().map(|policy| policy.name()).collect::<Vec<_>>().join("+")
    }
}

/// Asks everybody again whenever somebody wants fewer ranks, so that whoever has a lower limit
/// speaks of the size that is left. Ends, because sizes only become fewer.
pub(super) fn all(policies: &[&dyn ScalePolicy], facts: &Facts) -> Verdict {
    let mut facts = facts.clone();
    loop {
        let verdicts = policies.iter().map(|policy| decide(*policy, &facts));
        let careful = verdicts.fold(Verdict::Run { ranks: u32::MAX }, careful);
        let Verdict::Run { ranks } = careful else { return careful };
        match facts.largest(ranks) {
            Some(least) if facts.sizes.last() != Some(least) => facts = facts.within(ranks),
            _ => return careful,
        }
    }
}

/// The more careful of two verdicts; of equal ones the first.
fn careful(a: Verdict, b: Verdict) -> Verdict {
    match (&a, &b) {
        (Verdict::Fail { .. }, _) => a,
        (_, Verdict::Fail { .. }) => b,
        (Verdict::Wait { .. }, _) => a,
        (_, Verdict::Wait { .. }) => b,
        (Verdict::Run { ranks: x }, Verdict::Run { ranks: y }) => {
            if y < x {
                b
            } else {
                a
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elastic::policy::Answer;
    use crate::elastic::policy::tests::Ok2Run;
    use crate::elastic::{Policy, Size};

    #[test]
    fn different_kinds_agree() {
        let mut facts = Facts::initial(8, 10, 64);
        facts.members = vec![crate::elastic::Member::new("a", 8)];
        facts.sizes = [2, 4, 8].map(|ranks| Size::ranks(ranks, 64)).to_vec();
        let own =
            Ok2Run(|hosts: &[&str], _| if hosts.len() > 4 { Answer::Ok } else { Answer::Fail });
        let built_in: Policy = "min-max:2:4".parse().unwrap();
        let both = Together(vec![Box::new(own), Box::new(built_in)]);
        assert_eq!(both.name(), "ok2run+min-max:2:4");
        assert_eq!(decide(&both, &facts), Verdict::Run { ranks: 4 });
        facts.members[0].slots = 4;
        facts.sizes.pop();
        assert_eq!(decide(&both, &facts), Verdict::fail("ok2run fails with 4 hosts"));
        assert_eq!(decide(&Together(vec![]), &facts), Verdict::Run { ranks: 4 });
    }
}
