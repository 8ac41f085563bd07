use trashfs_mount::Interceptor;

use super::world::World;
use crate::record::OpRecord;

#[test]
fn the_record_is_there_before_anything_else_and_says_who() {
    let world = World::new();
    world.write("x", "1");
    world.unlink("x").unwrap();
    let id = world.staging.entries().unwrap().remove(0);
    let entry = world.staging.entry(&id).unwrap().unwrap();
    let record: OpRecord = entry.op_record().unwrap().unwrap();
    assert_eq!(record.entry, id);
    assert_eq!(record.process.pid, std::process::id());
    assert!(!record.process.argv.is_empty());
    assert!(world.scratch_is_empty());
}

#[test]
fn both_ways_of_keeping_make_two_entries_of_one_operation() {
    let world = World::new();
    world.write("x", "1");
    world.write("y", "2");
    world.unlink("x").unwrap();
    world.truncate("y", 0).unwrap();
    let ids = world.staging.entries().unwrap();
    let operations: std::collections::HashSet<_> = ids
        .iter()
        .map(|id| {
            let entry = world.staging.entry(id).unwrap().unwrap();
            entry.op_record().unwrap().unwrap().operation
        })
        .collect();
    assert_eq!((ids.len(), operations.len()), (2, 1));
}

#[test]
fn an_entry_is_complete_only_after_its_last_writer_has_gone() {
    let world = World::new();
    let node = super::world::node(&world.write("log", "1"));
    world.unlink_open("log", 1).unwrap();
    world.capture.close_all();
    assert_eq!(world.told(), ["opened hosted", "waiting 1 1"]);
    world.capture.writers_gone(node);
    assert_eq!(world.told(), ["closed 1 1"]);
    world.capture.writers_gone(node);
    assert!(world.told().is_empty());
}

#[test]
fn a_writer_of_what_was_not_replaced_after_all_is_not_waited_for() {
    let world = World::new();
    world.write("f", "1");
    world.write("g", "2");
    let ticket = world.prepare_replace("f", 1);
    world.capture.settled(ticket, Err(rustix::io::Errno::IO));
    world.truncate("g", 0).unwrap();
    world.capture.close_all();
    assert_eq!(world.told(), ["opened local", "closed 1 1"]);
}

#[test]
fn the_next_command_is_another_operation() {
    let world = World::new();
    for name in ["x", "y"] {
        world.write(name, "1");
        world.unlink(name).unwrap();
        world.capture.close_all();
    }
    assert_eq!(world.staging.entries().unwrap().len(), 2);
    assert_eq!(
        world.told(),
        ["opened hosted", "closed 1 1", "opened hosted", "closed 1 1"]
    );
}

#[test]
fn an_operation_whose_command_has_ended_is_closed_by_itself() {
    let mut world = World::new();
    world.write("x", "1");
    let mut child = std::process::Command::new("sleep");
    std::os::unix::process::CommandExt::process_group(&mut child, 0);
    let mut child = child.arg("60").spawn().unwrap();
    world.caller.tid = child.id();
    world.unlink("x").unwrap();
    assert!(world.capture.tick().is_some());
    assert_eq!(world.told(), ["opened hosted"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let closed = world
        .events
        .lock()
        .recv_timeout(std::time::Duration::from_secs(3));
    assert!(matches!(
        closed,
        Ok(crate::capture::CaptureEvent::Closed { members: 1, .. })
    ));
    assert_eq!(world.capture.tick(), None);
}

#[test]
fn many_processes_of_one_group_are_one_operation() {
    let mut world = World::new();
    let mut leader = std::process::Command::new("sleep");
    std::os::unix::process::CommandExt::process_group(&mut leader, 0);
    let mut leader = leader.arg("60").spawn().unwrap();
    let group = i32::try_from(leader.id()).unwrap();
    for n in 0..20 {
        let name = format!("f{n}");
        world.write(&name, "1");
        let mut member = std::process::Command::new("sleep");
        std::os::unix::process::CommandExt::process_group(&mut member, group);
        let mut member = member.arg("60").spawn().unwrap();
        world.caller.tid = member.id();
        world.unlink(&name).unwrap();
        member.kill().unwrap();
        member.wait().unwrap();
    }
    leader.kill().unwrap();
    leader.wait().unwrap();
    assert_eq!(world.staging.entries().unwrap().len(), 1);
}
