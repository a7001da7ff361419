//! Groups: members that share a kernel.

use douse_core::sym::{Expr, Ranges};
use douse_ir::Value;

use super::member::{Kind, Member};

#[derive(Debug)]
pub struct Group {
    /// Sizes of the outer loops.
    pub outer: Vec<Expr>,
    pub members: Vec<Member>,
    /// For each member, its loop of each outer loop.
    pub maps: Vec<Vec<usize>>,
    /// The result of the product at whose points it is computed.
    pub product: Option<Value>,
    /// Why its first member is not in the group that it reads from, and that group's last member's result.
    pub apart: Option<(Apart, Value)>,
}

/// Why a member is not in a group that it reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// It reads something else that is made after the group.
    Later,
    /// One of them is a product's epilogue.
    Epilogue,
    /// It goes through the points in another way, or the group is large.
    Loops,
}

impl Apart {
    /// In words, after "apart from X: ".
    pub fn reason(self) -> &'static str {
        match self {
            Apart::Later => "it reads what is made after that",
            Apart::Epilogue => "one of them is a product's epilogue",
            Apart::Loops => "its loops are others, or there would be too much in one kernel",
        }
    }
}

/// How a member joins a group: the outer loops that stay, and the member's loop of each.
#[derive(Debug, PartialEq)]
pub struct Fit {
    keep: Vec<usize>,
    map: Vec<usize>,
}

/// Kernels are kept to this many members and instructions.
const MEMBERS: usize = 24;
const INSTRUCTIONS: usize = 600;
/// What may run in a single outer point, and how many points there must be for more.
const SERIAL: i64 = 32_768;
const POINTS: i64 = 4;
/// So few points cost less than a launch, whatever their order.
const FEW: i64 = 16_384;

impl Group {
    pub fn new(member: Member, product: Option<Value>) -> Group {
        let map: Vec<usize> = (0..member.loops.len()).filter(|l| !member.inner[*l]).collect();
        let outer = map.iter().map(|l| member.loops[*l].clone()).collect();
        Group { outer, members: vec![member], maps: vec![map], product, apart: None }
    }

    pub fn defines(&self, value: Value) -> Option<usize> {
        self.members.iter().position(|m| m.values.contains(&value))
    }

    /// How `member`, which reads values of the group, can join it.
    pub fn fit(&self, member: &Member, ranges: &Ranges) -> Option<Fit> {
        let size: usize = self.members.iter().map(|m| m.body.len()).sum();
        if self.members.len() >= MEMBERS || size + member.body.len() > INSTRUCTIONS {
            return None;
        }
        let reads: Vec<(usize, &[Expr])> =
            member.reads().filter_map(|(value, at)| self.defines(value).map(|m| (m, at))).collect();
        if reads.is_empty() {
            return None;
        }
        let (mut keep, mut map) = (Vec::new(), Vec::new());
        for (k, size) in self.outer.iter().enumerate() {
            let read_at = |(m, at): &(usize, &[Expr])| {
                let owner = &self.members[*m];
                let dim = owner.dims.iter().position(|l| *l == Some(self.maps[*m][k]))?;
                at.get(dim)?.as_loop()
            };
            let Some(l) = read_at(&reads[0]) else { continue };
            let same = reads.iter().all(|r| read_at(r) == Some(l));
            if same && !member.inner[l] && member.loops[l] == *size && !map.contains(&l) {
                keep.push(k);
                map.push(l);
            }
        }
        let dropped = keep.len() < self.outer.len();
        let points = |m: &Member| matches!(m.kind, Kind::Point { .. });
        if dropped && !self.members.iter().all(points) {
            return None;
        }
        // Point by point, each had better go its own way: together, one would take the points of few threads, and not side by side.
        let all = |m: &Member| Expr::product(&m.loops);
        let few = |m: &Member| ranges.max(&all(m)).is_some_and(|most| most <= FEW);
        if dropped && points(member) && !(few(member) && self.members.iter().all(few)) {
            return None;
        }
        let rest = (0..member.loops.len()).filter(|l| !map.contains(l));
        if !points(member) && rest.clone().any(|l| !member.inner[l]) {
            return None;
        }
        // Few outer points leave nothing to share among threads; then each must be small, or be a reduction, whose points blocks share.
        let outer = Expr::product(keep.iter().map(|k| &self.outer[*k]));
        let inner = Expr::product(rest.map(|l| &member.loops[l]));
        let own = self.members.iter().zip(&self.maps).map(|(m, map)| {
            let kept: Vec<usize> = keep.iter().map(|k| map[*k]).collect();
            Expr::product((0..m.loops.len()).filter(|l| !kept.contains(l)).map(|l| &m.loops[l]))
        });
        let own: Vec<Expr> = own.collect();
        let small = |e: &Expr| ranges.max(e).is_some_and(|m| m <= SERIAL);
        let many = outer.as_int().is_none_or(|n| n >= POINTS) && !keep.is_empty();
        let reduces = |m: &Member| matches!(m.kind, Kind::Reduce { .. });
        let all_fit = |fits: &dyn Fn(&Member, &Expr) -> bool| {
            fits(member, &inner) && self.members.iter().zip(&own).all(|(m, own)| fits(m, own))
        };
        let fits =
            many || all_fit(&|_, inner| small(inner)) || !dropped && all_fit(&|m, inner| reduces(m) || inner.is_int(1));
        fits.then_some(Fit { keep, map })
    }

    pub fn join(&mut self, member: Member, fit: Fit) {
        self.outer = fit.keep.iter().map(|k| self.outer[*k].clone()).collect();
        for map in &mut self.maps {
            *map = fit.keep.iter().map(|k| map[*k]).collect();
        }
        self.members.push(member);
        self.maps.push(fit.map);
    }
}
