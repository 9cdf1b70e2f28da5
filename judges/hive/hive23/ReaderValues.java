package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonPrimitive;
import java.nio.charset.StandardCharsets;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hive.common.type.HiveChar;
import org.apache.hadoop.hive.ql.exec.vector.BytesColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.ColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.DecimalColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.DoubleColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.ListColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.LongColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.MapColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.StructColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.TimestampColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.UnionColumnVector;
import org.apache.hadoop.hive.serde2.io.DateWritable;
import org.apache.hadoop.hive.serde2.objectinspector.ListObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.MapObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.PrimitiveObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.StructField;
import org.apache.hadoop.hive.serde2.objectinspector.StructObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.UnionObjectInspector;
import org.apache.hadoop.hive.serde2.typeinfo.CharTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.ListTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.MapTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.PrimitiveTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.StructTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.UnionTypeInfo;

/** The values from Hive's readers, as objects or in column vectors, in the notation of {@link Values}. */
final class ReaderValues {
  private ReaderValues() {}

  static JsonElement json(Object value, ObjectInspector inspector) {
    if (value == null) {
      return JsonNull.INSTANCE;
    }
    JsonArray array = new JsonArray();
    switch (inspector.getCategory()) {
      case LIST: {
        ListObjectInspector list = (ListObjectInspector) inspector;
        for (Object each : list.getList(value)) {
          array.add(json(each, list.getListElementObjectInspector()));
        }
        return array;
      }
      case MAP: {
        MapObjectInspector map = (MapObjectInspector) inspector;
        List<JsonArray> entries = new ArrayList<>();
        for (Map.Entry<?, ?> each : map.getMap(value).entrySet()) {
          entries.add(entry(
              json(each.getKey(), map.getMapKeyObjectInspector()),
              json(each.getValue(), map.getMapValueObjectInspector())));
        }
        return sorted(entries);
      }
      case STRUCT: {
        StructObjectInspector struct = (StructObjectInspector) inspector;
        for (StructField field : struct.getAllStructFieldRefs()) {
          array.add(json(struct.getStructFieldData(value, field), field.getFieldObjectInspector()));
        }
        return array;
      }
      case UNION: {
        UnionObjectInspector union = (UnionObjectInspector) inspector;
        byte tag = union.getTag(value);
        return entry(new JsonPrimitive(tag), json(union.getField(value), union.getObjectInspectors().get(tag)));
      }
      default:
        return Values.primitive(((PrimitiveObjectInspector) inspector).getPrimitiveJavaObject(value));
    }
  }

  /** One value of a column vector. */
  static JsonElement json(ColumnVector vector, int row, TypeInfo type) {
    int at = vector.isRepeating ? 0 : row;
    if (!vector.noNulls && vector.isNull[at]) {
      return JsonNull.INSTANCE;
    }
    JsonArray array = new JsonArray();
    switch (type.getCategory()) {
      case LIST: {
        ListColumnVector list = (ListColumnVector) vector;
        for (long i = list.offsets[at]; i < list.offsets[at] + list.lengths[at]; i++) {
          array.add(json(list.child, (int) i, ((ListTypeInfo) type).getListElementTypeInfo()));
        }
        return array;
      }
      case MAP: {
        MapColumnVector map = (MapColumnVector) vector;
        List<JsonArray> entries = new ArrayList<>();
        for (long i = map.offsets[at]; i < map.offsets[at] + map.lengths[at]; i++) {
          entries.add(entry(
              json(map.keys, (int) i, ((MapTypeInfo) type).getMapKeyTypeInfo()),
              json(map.values, (int) i, ((MapTypeInfo) type).getMapValueTypeInfo())));
        }
        return sorted(entries);
      }
      case STRUCT: {
        List<TypeInfo> types = ((StructTypeInfo) type).getAllStructFieldTypeInfos();
        for (int i = 0; i < types.size(); i++) {
          array.add(json(((StructColumnVector) vector).fields[i], at, types.get(i)));
        }
        return array;
      }
      case UNION: {
        UnionColumnVector union = (UnionColumnVector) vector;
        int tag = union.tags[at];
        List<TypeInfo> types = ((UnionTypeInfo) type).getAllUnionObjectTypeInfos();
        return entry(new JsonPrimitive(tag), json(union.fields[tag], at, types.get(tag)));
      }
      default:
        return Values.primitive(primitive(vector, at, (PrimitiveTypeInfo) type));
    }
  }

  private static Object primitive(ColumnVector vector, int at, PrimitiveTypeInfo type) {
    switch (type.getPrimitiveCategory()) {
      case BOOLEAN:
        return ((LongColumnVector) vector).vector[at] != 0;
      case BYTE:
      case SHORT:
      case INT:
      case LONG:
        return ((LongColumnVector) vector).vector[at];
      case FLOAT:
        return (float) ((DoubleColumnVector) vector).vector[at];
      case DOUBLE:
        return ((DoubleColumnVector) vector).vector[at];
      case DATE:
        return new DateWritable((int) ((LongColumnVector) vector).vector[at]).get();
      case TIMESTAMP: {
        Timestamp timestamp = new Timestamp(0);
        ((TimestampColumnVector) vector).timestampUpdate(timestamp, at);
        return timestamp;
      }
      case DECIMAL:
        return ((DecimalColumnVector) vector).vector[at].getHiveDecimal();
      default:
        return bytes((BytesColumnVector) vector, at, type);
    }
  }

  private static Object bytes(BytesColumnVector vector, int at, PrimitiveTypeInfo type) {
    byte[] bytes = new byte[vector.length[at]];
    System.arraycopy(vector.vector[at], vector.start[at], bytes, 0, bytes.length);
    switch (type.getPrimitiveCategory()) {
      case BINARY:
        return bytes;
      case CHAR:
        return new HiveChar(new String(bytes, StandardCharsets.UTF_8), ((CharTypeInfo) type).getLength());
      default:
        return new String(bytes, StandardCharsets.UTF_8);
    }
  }

  private static JsonArray entry(JsonElement first, JsonElement second) {
    JsonArray entry = new JsonArray();
    entry.add(first);
    entry.add(second);
    return entry;
  }

  private static JsonArray sorted(List<JsonArray> entries) {
    entries.sort(Comparator.comparing(each -> each.get(0).toString()));
    JsonArray array = new JsonArray();
    entries.forEach(array::add);
    return array;
  }
}
