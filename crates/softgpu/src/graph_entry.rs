//! The driver's functions of graphs.

#![allow(non_snake_case, unused_unsafe)]

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use crate::entry::{Context, Handle, check_copy, launch, put};
use crate::exports::{functions, give, slice};
use crate::graph::{Graph, Kind};
use crate::params::{ConditionalParams, CopyParams, KernelParams, conditional};
use crate::status::{GRAPH_EXEC_UPDATE_FAILURE, INVALID_CONTEXT, INVALID_VALUE, Outcome, fail};
use crate::stream::{Launch, Side, Work};
use crate::world::{CONTEXT, world};

functions! {
    context fn cuGraphCreate(graph: *mut Handle, flags: c_uint) {
        if flags != 0 {
            return fail(INVALID_VALUE, "flags of a graph");
        }
        let mut world = world();
        let handle = world.handle();
        world.graphs.insert(handle, Graph::default());
        world.note("graph");
        give(graph, handle)
    }

    context fn cuGraphDestroy(graph: Handle) {
        let mut world = world();
        world.destroy_graph(graph)?;
        world.note("ungraph");
        Ok(())
    }

    context fn cuGraphAddKernelNode_v2(
        node: *mut Handle, graph: Handle, after: *const Handle, count: usize, params: *const KernelParams,
    ) {
        let launch = node_launch(params)?;
        let handle = world().add_node(graph, slice(after, count), Kind::Work(Work::Launch(launch)))?;
        give(node, handle)
    }

    context fn cuGraphAddDependencies_v2(
        graph: Handle, from: *const Handle, to: *const Handle, data: *const [u8; 8], count: usize,
    ) {
        let programmatic = (0..count).map(|i| !data.is_null() && (*data.add(i))[2] != 0);
        let edges: Vec<_> = slice(from, count).iter().zip(slice(to, count)).zip(programmatic).collect();
        let mut world = world();
        edges.into_iter().try_for_each(|((from, to), programmatic)| world.add_edge(graph, *from, *to, programmatic))
    }

    context fn cuGraphAddMemcpyNode(
        node: *mut Handle, graph: Handle, after: *const Handle, count: usize, params: *const CopyParams, context: Context,
    ) {
        let work = node_copy(params, context)?;
        let handle = world().add_node(graph, slice(after, count), Kind::Work(work))?;
        give(node, handle)
    }

    context fn cuGraphAddEmptyNode(node: *mut Handle, graph: Handle, after: *const Handle, count: usize) {
        let handle = world().add_node(graph, slice(after, count), Kind::Empty)?;
        give(node, handle)
    }

    context fn cuGraphAddChildGraphNode(
        node: *mut Handle, graph: Handle, after: *const Handle, count: usize, child: Handle,
    ) {
        let mut world = world();
        let kind = world.child(child)?;
        let handle = world.add_node(graph, slice(after, count), kind)?;
        give(node, handle)
    }

    context fn cuGraphConditionalHandleCreate(
        condition: *mut u64, graph: Handle, context: Context, first: c_uint, flags: c_uint,
    ) {
        let mut world = world();
        if context != CONTEXT || flags > 1 {
            return fail(INVALID_VALUE, "the context or flags of a condition");
        }
        let handle = world.handle();
        let first = (flags == 1).then_some(first);
        world.graphs.get_mut(graph)?.conditions.push((handle, first));
        give(condition, handle)
    }

    context fn cuGraphAddNode_v2(
        node: *mut Handle, graph: Handle, after: *const Handle, _data: *const c_void, count: usize,
        params: *mut ConditionalParams,
    ) {
        let handle = conditional(graph, slice(after, count), params)?;
        give(node, handle)
    }

    context fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, _flags: u64) {
        let mut world = world();
        let instance = world.instantiate(graph)?;
        let handle = world.handle();
        world.execs.insert(handle, instance);
        world.note("exec");
        give(exec, handle)
    }

    context fn cuGraphExecDestroy(exec: Handle) {
        let mut world = world();
        world.execs.remove(exec)?;
        world.note("unexec");
        Ok(())
    }

    context fn cuGraphUpload(exec: Handle, stream: Handle) {
        let world = world();
        world.execs.get(exec)?;
        world.stream(stream).map(|_| ())
    }

    context fn cuGraphLaunch(exec: Handle, stream: Handle) {
        let instance = world().execs.get(exec)?.clone();
        world().note("replay");
        put(stream, Work::Graph(Arc::new(instance)))
    }

    context fn cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, params: *const KernelParams) {
        let launch = node_launch(params)?;
        world().note("patch");
        world().execs.get_mut(exec)?.change(node, |node| match &mut node.kind {
            Kind::Work(Work::Launch(old)) => {
                *old = launch;
                Ok(())
            }
            _ => fail(INVALID_VALUE, "the node is no launch"),
        })
    }

    context fn cuGraphExecMemcpyNodeSetParams(exec: Handle, node: Handle, params: *const CopyParams, context: Context) {
        let work = node_copy(params, context)?;
        world().note("patch");
        world().execs.get_mut(exec)?.change(node, |node| match (&mut node.kind, work) {
            (Kind::Work(old @ Work::Copy { .. }), new) if same_kinds(old, &new) => {
                *old = new;
                Ok(())
            }
            _ => fail(INVALID_VALUE, "the node is no copy between memory of these kinds"),
        })
    }

    context fn cuGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, child: Handle) {
        let mut world = world();
        let new = world.child(child)?;
        world.note("patch");
        world.execs.get_mut(exec)?.change(node, |node| match (&mut node.kind, new) {
            (Kind::Child(old), Kind::Child(new)) if old.len() == new.len() => {
                *old = new;
                Ok(())
            }
            _ => fail(INVALID_VALUE, "the node is no graph of as many nodes"),
        })
    }

    context fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, result: *mut [u64; 3]) {
        let mut world = world();
        let new = world.instantiate(graph)?;
        let outcome = world.execs.get_mut(exec)?.update(new);
        // CU_GRAPH_EXEC_UPDATE_SUCCESS; ERROR_TOPOLOGY_CHANGED and the node.
        give(result, match outcome {
            Ok(()) => [0, 0, 0],
            Err(node) => [2, node.unwrap_or(0), node.unwrap_or(0)],
        })?;
        if outcome.is_ok() { Ok(()) } else { fail(GRAPH_EXEC_UPDATE_FAILURE, "the nodes differ") }
    }
}

unsafe fn node_launch(params: *const KernelParams) -> Outcome<Launch> {
    // SAFETY: the caller's structure.
    unsafe {
        let params = &*params;
        if !params.kernel.is_null() || !params.extra.is_null() || (params.context != 0 && params.context != CONTEXT) {
            return fail(INVALID_VALUE, "a launch of another context, or with parameters in a buffer");
        }
        launch(params.function, params.blocks, params.threads, params.shared, params.parameters)
    }
}

unsafe fn node_copy(params: *const CopyParams, context: Context) -> Outcome<Work> {
    // SAFETY: the caller's structure.
    let work = unsafe { (*params).work()? };
    if context != CONTEXT {
        return fail(INVALID_CONTEXT, "the context of a copy");
    }
    if let Work::Copy { from, to, len } = &work {
        let world = world();
        if let Some(Side::Pinned(address)) = [from, to].into_iter().find(|side| matches!(side, Side::Pinned(_)))
            && !world.memory.is_pinned(*address, *len)
        {
            return fail(INVALID_VALUE, format!("a graph's copy with {}", world.memory.describe(*address)));
        }
    }
    check_copy(&work)?;
    Ok(work)
}

fn same_kinds(a: &Work, b: &Work) -> bool {
    let same = |a: &Side, b: &Side| std::mem::discriminant(a) == std::mem::discriminant(b);
    match (a, b) {
        (Work::Copy { from, to, .. }, Work::Copy { from: from_b, to: to_b, .. }) => {
            same(from, from_b) && same(to, to_b)
        }
        _ => false,
    }
}
