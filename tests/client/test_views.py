"""What a server says is short to look at, and has all of its message."""

import copy

import pytest

import npucall
from npucall.operators import CATALOGUE
from npucall.v1 import access_service_pb2 as access_pb
from npucall_client.views import ServerActivity, ServerUsage


def test_what_a_server_is_fits_into_a_line(local: npucall.Client) -> None:
    info = local.info()
    assert repr(info).startswith(f"<ServerInfo: local as Ascend910B1, npucall {info.version}, up ")
    assert info.server.soc == info.message.server.soc == "Ascend910B1"
    assert copy.copy(info) == info == info.message
    assert local.server_info().server == info.server
    assert "<th>fact</th>" in info._repr_html_()
    assert "<tr><td>device</td><td>local</td></tr>" in info._repr_html_()
    with pytest.raises(AttributeError):
        info.nothing = 1


def test_what_a_server_lists_is_a_sequence_with_a_line_for_each(local: npucall.Client) -> None:
    listed = local.operators()
    assert len(listed) == len(CATALOGUE)
    assert repr(listed).startswith(f"<ServerOperators: {len(listed)}, of which ")
    assert listed[0] == next(iter(listed)) == listed.message.operators[0]
    gelu = local.operator("gelu")
    assert gelu in listed
    assert repr(gelu) == "<OperatorInfo: aclnnGelu(self, out)>"
    assert "<td>const aclTensor* self</td>" in gelu._repr_html_()
    with npucall.connect("local:", soc="Ascend310P3") as other:
        missing = next(each for each in other.operators() if not each.available)
        assert repr(missing).endswith(f", not here: {missing.unavailable_because}>")
    assert listed._repr_html_().count("<tr>") == len(listed) + 1


def test_who_used_a_server_and_uses_it_now_fits_into_a_line(local: npucall.Client) -> None:
    assert repr(local.usage()) == "<ServerUsage: 0 calls, 0.000 s of the device, 0 lines>"
    line = access_pb.UsageLine(tenant="<b>", caller="ann", operator="aclnnGelu", calls=1200)
    used = ServerUsage(access_pb.GetUsageResponse(lines=[line], since=86_400))
    assert repr(used).endswith(
        "1,200 calls, 0.000 s of the device, 1 lines since 1970-01-02 00:00:00+00:00>"
    )
    assert "<td>&lt;b&gt;</td><td>ann</td><td>aclnnGelu</td><td>1200</td>" in used._repr_html_()
    busy = access_pb.CallerActivity(caller={"tenant": "v", "name": "ann"}, calls=2, bytes=1536)
    now = ServerActivity(
        access_pb.GetActivityResponse(callers=[busy], running=1, lanes=2, waiting=3)
    )
    assert repr(now) == "<ServerActivity: 1 of 2 turns taken, 3 calls wait, 1 callers>"
    assert "<td>v</td><td>ann</td><td>2</td><td>1.5 KiB</td>" in now._repr_html_()
